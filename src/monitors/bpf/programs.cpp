// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/bpf/programs.hpp"

#include "monitors/bpf/call.hpp"
#include "monitors/bpf/failure.hpp"

#if PINFOLD_WITH_BPF

#include <bpf/libbpf.h>
#include <fcntl.h>
#include <memory>
#include <mutex>

asm(".pushsection .rodata\n"
    ".balign 16\n"
    "pinfold_bpf_object:\n"
    ".incbin \"" PINFOLD_BPF_OBJECT
    "\"\n"
    "pinfold_bpf_object_end:\n"
    ".popsection\n");
extern "C" {
extern const char pinfold_bpf_object[] __attribute__((visibility("hidden")));
extern const char pinfold_bpf_object_end[] __attribute__((visibility("hidden")));
}

namespace pinfold::monitors {

namespace {

struct closes_object {
  void operator()(bpf_object* opened) const noexcept { ::bpf_object__close(opened); }
};
using object = std::unique_ptr<bpf_object, closes_object>;

int print_nothing(libbpf_print_level, const char*, va_list) { return 0; }

/// Silences libbpf, which would print to stderr what the error code already reports. The print function belongs to the
/// whole process.
class silence {
 public:
  silence() noexcept : before_(::libbpf_set_print(print_nothing)) {}
  silence(const silence&) = delete;
  silence& operator=(const silence&) = delete;
  ~silence() { ::libbpf_set_print(before_); }

 private:
  libbpf_print_fn_t before_;
};

tl::unexpected<error> refused(int native) noexcept {
  if (native == EPERM || native == EACCES)
    return fail_errno(errc::not_permitted, native, "loading kernel programs needs CAP_BPF and CAP_PERFMON");
  if (native == ENOMEM) return fail_errno(errc::out_of_resources, native, "no memory for the kernel programs");
  return fail_errno(errc::unsupported, native, "this kernel cannot run the monitor's programs");
}

result<object> load_object() noexcept {
  object opened(::bpf_object__open_mem(pinfold_bpf_object,
                                       static_cast<std::size_t>(pinfold_bpf_object_end - pinfold_bpf_object), nullptr));
  if (!opened) return refused(errno);
  if (const int outcome = ::bpf_object__load(opened.get()); outcome != 0) return refused(-outcome);
  return opened;
}

os::file map_of(const object& loaded, const char* name) noexcept {
  const int number = ::bpf_object__find_map_fd_by_name(loaded.get(), name);
  return os::file(::fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

result<void> attach_all(const object& loaded, bpf_links& links) noexcept {
  std::size_t count = 0;
  bpf_program* each = nullptr;
  while ((each = ::bpf_object__next_program(loaded.get(), each)) != nullptr) {
    if (count == links.size()) return fail(errc::unsupported, "there are more kernel programs than links");
    links[count] = os::file(bpf_attach(::bpf_program__fd(each)));
    if (!links[count++]) return bpf_fail("cannot attach the monitor's kernel programs");
  }
  if (count != links.size()) return fail(errc::unsupported, "there are fewer kernel programs than links");
  return {};
}

}  // namespace

result<bpf_programs> bpf_programs::load() noexcept {
  static std::mutex one_at_a_time;
  const std::scoped_lock guard(one_at_a_time);
  const silence quiet;
  const auto loaded = load_object();
  if (!loaded) return tl::unexpected(loaded.error());
  bpf_programs made;
  made.rings = map_of(*loaded, "rings");
  made.slots = map_of(*loaded, "slots");
  made.invitations = map_of(*loaded, "invitations");
  if (!made.rings || !made.slots || !made.invitations) return bpf_fail("cannot get a descriptor of a map");
  if (auto attached = attach_all(*loaded, made.links); !attached) return tl::unexpected(attached.error());
  return made;
}

}  // namespace pinfold::monitors

#else

namespace pinfold::monitors {

result<bpf_programs> bpf_programs::load() noexcept { return fail(errc::unsupported, "built without libbpf"); }

}  // namespace pinfold::monitors

#endif
