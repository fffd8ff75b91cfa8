// SPDX-License-Identifier: BSD-3-Clause
// `pinfold run`: what it sets for a program, and what it refuses. The adapters are copies of a library beside a copy of
// the tool, laid out as the build and the installation do; tests/adapters has those that work.
#include "support/host/sanitized.hpp"
#include "support/processes/tool_run.hpp"

#include <dlfcn.h>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>

namespace pinfold::testing::cli_run_test {
namespace {

namespace fs = std::filesystem;

using variables = std::map<std::string, std::string>;

class cli_run : public ::testing::Test {
 protected:
  cli_run() {
    fs::create_directories(root_ / "bin");
    fs::copy_file(original_, root_ / "bin" / "pinfold");
    fs::permissions(root_ / "bin" / "pinfold", fs::perms::owner_all);
    setenv("PINFOLD_TEST_TOOL", (root_ / "bin" / "pinfold").c_str(), 1);
  }
  ~cli_run() override {
    setenv("PINFOLD_TEST_TOOL", original_.c_str(), 1);
    fs::remove_all(root_);
  }

  fs::path place(const std::string& file) const {
    const auto path = root_ / file;
    fs::create_directories(path.parent_path());
    fs::copy_file(library(), path);
    return fs::canonical(path);
  }

  fs::path place_damaged(const std::string& file) const {
    const auto path = place(file);
    fs::resize_file(path, 0);
    return path;
  }

  // Any that can be loaded.
  static fs::path library() {
    Dl_info found{};
    EXPECT_NE(dladdr(dlsym(dlopen("libm.so.6", RTLD_NOW), "cos"), &found), 0);
    return found.dli_fname;
  }

  static variables variables_under(const std::string& options, const std::string& settings = "") {
    std::string clean = "env";
    for (const char* name : {"LD_PRELOAD", "FI_HOOK", "FI_PROVIDER_PATH", "OMPI_MCA_mca_base_component_path",
                             "OMPI_MCA_rcache", "OMPI_MCA_rcache_pinfold_replace", "PINFOLD_STATISTICS_AT_EXIT"})
      clean.append(" -u ").append(name);
    const auto seen = run("run " + options + " -- env", clean + " " + settings);
    EXPECT_EQ(seen.status, 0) << seen.complaints;
    variables found;
    std::istringstream lines(seen.out);
    for (std::string line; std::getline(lines, line);) {
      const auto equals = line.find('=');
      if (equals != std::string::npos) found[line.substr(0, equals)] = line.substr(equals + 1);
    }
    return found;
  }

  const std::string original_ = tool();
  const fs::path root_ = fs::canonical(::testing::TempDir()) / ("pinfold_cli_run_" + std::to_string(getpid()));
};

TEST_F(cli_run, openmpi_finds_and_selects_the_component) {
  const auto folder = place("adapters/openmpi/mca_rcache_pinfold.so").parent_path().string();
  const auto seen = variables_under("--for openmpi");
  EXPECT_EQ(seen.at("OMPI_MCA_rcache_pinfold_replace"), "true");
  EXPECT_EQ(seen.at("OMPI_MCA_mca_base_component_path"), "SYSTEM_DEFAULT:" + folder + ":USER_DEFAULT");
  const auto with = variables_under("--for openmpi", "OMPI_MCA_mca_base_component_path=/mine OMPI_MCA_rcache=grdma");
  EXPECT_EQ(with.at("OMPI_MCA_mca_base_component_path"), "/mine:" + folder);
  EXPECT_EQ(with.count("OMPI_MCA_rcache"), 0U) << "Open MPI ends the job on a host without the component";
}

TEST_F(cli_run, libfabric_finds_and_selects_the_hook) {
  const auto folder = place("adapters/libfabric/libpinfold-fi.so").parent_path().string();
  const auto seen = variables_under("--for libfabric");
  EXPECT_EQ(seen.at("FI_PROVIDER_PATH"), folder);
  EXPECT_EQ(seen.at("FI_HOOK"), "pinfold");
  const auto with = variables_under("--for libfabric", "FI_PROVIDER_PATH=/mine FI_HOOK=perf");
  EXPECT_EQ(with.at("FI_PROVIDER_PATH"), folder + ":/mine");
  EXPECT_EQ(with.at("FI_HOOK"), "pinfold;perf");
}

TEST_F(cli_run, ucx_verbs_and_cuda_preload_a_library) {
  for (const auto& [client, file] :
       {std::pair("ucx", "libpinfold-ucx.so"), std::pair("verbs", "libpinfold-verbs-preload.so"),
        std::pair("cuda", "libpinfold-cuda.so")}) {
    const auto path = place(std::string("adapters/") + client + "/" + file).string();
    const auto for_it = std::string("--for ") + client;
    EXPECT_EQ(variables_under(for_it).at("LD_PRELOAD"), path);
  }
}

TEST_F(cli_run, earlier_preloads_stay) {
  const auto path = place("adapters/ucx/libpinfold-ucx.so").string();
  const auto other = place("other.so").string();
  EXPECT_EQ(variables_under("--for ucx", "LD_PRELOAD='" + other + "'").at("LD_PRELOAD"), path + ":" + other);
}

TEST_F(cli_run, several_adapters) {
  const auto ucx = place("adapters/ucx/libpinfold-ucx.so").string();
  const auto verbs = place("adapters/verbs/libpinfold-verbs-preload.so").string();
  place("adapters/libfabric/libpinfold-fi.so");
  const auto seen = variables_under("--for ucx --for libfabric --for verbs");
  EXPECT_EQ(seen.at("LD_PRELOAD"), verbs + ":" + ucx);
  EXPECT_EQ(seen.at("FI_HOOK"), "pinfold");
}

TEST_F(cli_run, limits_and_statistics_are_settings) {
  place("adapters/libfabric/libpinfold-fi.so");
  const auto seen = variables_under("--for libfabric --stats --limit bytes=64M,count=12");
  EXPECT_EQ(seen.at("PINFOLD_MAX_BYTES"), "64M");
  EXPECT_EQ(seen.at("PINFOLD_MAX_COUNT"), "12");
  EXPECT_EQ(seen.at("PINFOLD_STATISTICS_AT_EXIT"), "on");
  EXPECT_EQ(seen.count("OMPI_MCA_rcache_pinfold_max_bytes"), 0U);
  const auto without = variables_under("--for libfabric", "PINFOLD_MAX_COUNT=7");
  EXPECT_EQ(without.at("PINFOLD_MAX_COUNT"), "7") << "the environment's stays";
  EXPECT_EQ(without.count("PINFOLD_STATISTICS_AT_EXIT"), 0U);
}

TEST_F(cli_run, mpirun_hands_limits_and_statistics_on_to_other_hosts) {
  place("adapters/openmpi/mca_rcache_pinfold.so");
  const auto seen = variables_under("--for openmpi --stats --limit bytes=64M,count=12");
  EXPECT_EQ(seen.at("OMPI_MCA_rcache_pinfold_max_bytes"), "64M");
  EXPECT_EQ(seen.at("OMPI_MCA_rcache_pinfold_max_count"), "12");
  EXPECT_EQ(seen.at("OMPI_MCA_rcache_pinfold_print_stats"), "on");
  EXPECT_EQ(seen.at("PINFOLD_MAX_COUNT"), "12");
}

TEST_F(cli_run, the_programs_status_is_passed_on) {
  place("adapters/libfabric/libpinfold-fi.so");
  EXPECT_EQ(run("run --for libfabric -- sh -c 'exit 7'").status, 7);
  EXPECT_EQ(run("run --for libfabric -- sh -c 'kill -TERM $$'; test $? = 143").status, 0);
  EXPECT_EQ(run("run --for libfabric -- /nonexistent/program").status, 127);
  EXPECT_EQ(run("run --for libfabric -- /etc/passwd").status, 126);
}

TEST_F(cli_run, options_of_the_program_are_its_own) {
  place("adapters/libfabric/libpinfold-fi.so");
  EXPECT_EQ(run("run --for libfabric --limit count=3 -- echo --stats --for ucx").out, "--stats --for ucx\n");
}

TEST_F(cli_run, missing_adapter_is_reported) {
  const auto seen = run("run --for ucx -- echo started");
  EXPECT_EQ(seen.status, 1);
  EXPECT_EQ(seen.out, "");
  EXPECT_NE(seen.complaints.find("the adapter for ucx is not installed"), std::string::npos) << seen.complaints;
  EXPECT_NE(seen.complaints.find((root_ / "adapters" / "ucx").string()), std::string::npos) << seen.complaints;
}

TEST_F(cli_run, without_an_adapter_that_cannot_be_loaded_the_program_runs_as_it_is) {
  for (const auto& [client, file] : {std::pair("openmpi", "mca_rcache_pinfold.so"),
                                     std::pair("ucx", "libpinfold-ucx.so"), std::pair("libfabric", "libpinfold-fi.so")})
    place_damaged(std::string("adapters/") + client + "/" + file);
  const auto seen = run("run --for openmpi -- sh -c 'echo $OMPI_MCA_mca_base_component_path; exit 7'",
                        "env -u OMPI_MCA_mca_base_component_path");
  EXPECT_EQ(seen.status, 7);
  EXPECT_EQ(seen.out, "\n");
  EXPECT_NE(seen.complaints.find("without the adapter for openmpi"), std::string::npos) << seen.complaints;
  EXPECT_NE(seen.complaints.find("file too short"), std::string::npos) << seen.complaints;
  EXPECT_EQ(variables_under("--for openmpi").count("OMPI_MCA_rcache_pinfold_replace"), 0U);
  EXPECT_EQ(variables_under("--for openmpi", "OMPI_MCA_rcache=grdma").at("OMPI_MCA_rcache"), "grdma");
  EXPECT_EQ(variables_under("--for ucx").count("LD_PRELOAD"), 0U);
  EXPECT_EQ(variables_under("--for libfabric").count("FI_HOOK"), 0U);
}

TEST_F(cli_run, without_an_adapter_whose_path_a_variable_cannot_hold_the_program_runs_as_it_is) {
  const auto found = [&](const std::string& folder, const std::string& client, const std::string& file) {
    place(folder + "/" + file);
    fs::create_directories(root_ / "adapters");
    fs::create_directory_symlink(root_ / folder, root_ / "adapters" / client);
    const auto seen = run("run --for " + client + " -- env");
    EXPECT_EQ(seen.status, 0);
    fs::remove(root_ / "adapters" / client);
    const bool named = seen.out.find(root_ / folder) != std::string::npos;
    EXPECT_NE(named, seen.complaints.find("is split at a character") != std::string::npos) << seen.complaints;
    return named;
  };
  EXPECT_FALSE(found("with a blank", "ucx", "libpinfold-ucx.so"));
  EXPECT_FALSE(found("with:colon", "ucx", "libpinfold-ucx.so"));
  EXPECT_TRUE(found("also a blank", "libfabric", "libpinfold-fi.so"));
  EXPECT_FALSE(found("also:colon", "libfabric", "libpinfold-fi.so"));
}

TEST_F(cli_run, wrong_usage_is_refused) {
  place("adapters/libfabric/libpinfold-fi.so");
  expect_each_refused({
      {"run -- echo", "--for"},
      {"run --for nothing -- echo", "nothing"},
      {"run --for libfabric", "program"},
      {"run --for libfabric --limit 64M -- echo", "expected bytes=SIZE or count=NUMBER"},
      {"run --for libfabric --limit bytes=much -- echo", "--limit bytes=much"},
      {"run --for libfabric --limit count=-1 -- echo", "--limit count=-1"},
      {"run --for libfabric --limit count= -- echo", "--limit count="},
  });
  const auto seen = run("run --for libfabric -- echo started", "PINFOLD_NO_SUCH_THING=1");
  EXPECT_EQ(seen.status, 2);
  EXPECT_EQ(seen.out, "");
  EXPECT_NE(seen.complaints.find("PINFOLD_NO_SUCH_THING"), std::string::npos) << seen.complaints;
}

json clients_of(const std::string& settings) {
  const auto seen = json::parse(run("info --json", settings).out);
  json by_name;
  for (const auto& row : seen.at("clients")) by_name[row.at("name").get<std::string>()] = row;
  return by_name;
}

TEST_F(cli_run, info_tells_which_adapters_work_here_and_why_not) {
  const auto damaged = place_damaged("adapters/libfabric/libpinfold-fi.so");
  const auto rows = clients_of("");
  EXPECT_EQ(rows.at("libfabric").at("adapter"), damaged.string());
  EXPECT_EQ(rows.at("libfabric").at("works"), false);
  EXPECT_NE(rows.at("libfabric").at("why_not").get<std::string>().find("file too short"), std::string::npos) << rows;
  EXPECT_EQ(rows.at("verbs").at("adapter"), "");
  EXPECT_NE(rows.at("verbs").at("why_not").get<std::string>().find("not installed"), std::string::npos) << rows;
  const auto seen = run("info");
  EXPECT_EQ(seen.status, 0);
  EXPECT_NE(seen.out.find("\n  libfabric   does not work:"), std::string::npos) << seen.out;
  if (sanitized) return;  // UCX, which is loaded for its version, patches functions of the sanitizer
  place("adapters/ucx/libpinfold-ucx.so");
  EXPECT_EQ(clients_of("").at("ucx").at("works"), true);
}

// The adapter can be loaded, and the program's library cannot: it is an empty file.
TEST_F(cli_run, info_says_works_only_where_the_clients_library_can_be_loaded) {
  Dl_info loadable{};
  ASSERT_NE(::dladdr(::dlsym(RTLD_DEFAULT, "cos"), &loadable), 0);
  for (const auto& [adapter, library] :
       {std::pair("cuda/libpinfold-cuda.so", "libcuda.so.1"), {"ucx/libpinfold-ucx.so", "libucp.so.0"}}) {
    const auto file = root_ / "adapters" / adapter;
    fs::create_directories(file.parent_path());
    fs::create_symlink(loadable.dli_fname, file);
    place_damaged(std::string("broken/") + library);
    const auto row = clients_of("LD_LIBRARY_PATH=" + (root_ / "broken").string()).at(file.parent_path().filename());
    EXPECT_EQ(row.at("works"), false) << row;
    EXPECT_NE(row.at("why_not").get<std::string>().find(library), std::string::npos) << row;
  }
}

TEST_F(cli_run, info_tells_which_clients_keep_registrations_themselves) {
  const auto usual = clients_of("env -u OMPI_MCA_rcache -u OMPI_MCA_rcache_pinfold_replace -u UCX_RCACHE_ENABLE");
  EXPECT_NE(usual.at("openmpi").at("own_cache"), "");
  EXPECT_NE(usual.at("ucx").at("own_cache"), "");
  EXPECT_EQ(usual.at("verbs").at("own_cache"), "");
  const auto off = clients_of("OMPI_MCA_rcache=pinfold UCX_RCACHE_ENABLE=n");
  EXPECT_EQ(off.at("openmpi").at("own_cache"), "");
  EXPECT_EQ(clients_of("OMPI_MCA_rcache_pinfold_replace=true").at("openmpi").at("own_cache"), "");
  EXPECT_EQ(off.at("ucx").at("own_cache"), "");
}

}  // namespace
}  // namespace pinfold::testing::cli_run_test
