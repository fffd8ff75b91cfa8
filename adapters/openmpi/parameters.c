/* SPDX-License-Identifier: BSD-3-Clause */
#include "parameters.h"

#include "opal/util/info.h"

#include <stdio.h>

/* A parameter that sets an option of the cache. */
struct parameter {
  const char *name;
  const char *setting; /* the variable of the environment with the same meaning, whose values it takes */
  const char *standard;
  const char *help;
  char *value; /* Open MPI's */
  int number;  /* Open MPI's */
};

static struct parameter parameters[] = {
    {"max_bytes", "PINFOLD_MAX_BYTES", "unlimited",
     "Most bytes registered at any time: a number with K, M, G or T, or unlimited. Registrations in use may exceed it",
     NULL, 0},
    {"max_count", "PINFOLD_MAX_COUNT", "unlimited",
     "Most registrations open at any time: a number, or unlimited. Registrations in use may exceed it", NULL, 0},
    {"monitor", "PINFOLD_MONITOR", "automatic",
     "What tells the cache that memory is gone: automatic, or one or more of hooks, userfaultfd, bpf, manual, none, "
     "joined with +",
     NULL, 0},
    {"audit_one_in", "PINFOLD_AUDIT", "0",
     "Compare the mapped pages with the registered pages at one hit in so many; 0 for never", NULL, 0},
    {"merge", "PINFOLD_MERGE", "rights",
     "What is registered for a request that overlaps registrations: none (what was asked for), rights (with those "
     "around it that lack access), overlaps (with all that overlap)",
     NULL, 0},
    {"print_stats", "PINFOLD_STATISTICS_AT_EXIT", "false",
     "Print what the cache did when MPI is finalized: true, false", NULL, 0},
};
enum { parameter_count = sizeof parameters / sizeof *parameters };

static struct parameter name_to_take = {
    "as",
    NULL,
    "grdma",
    "Name under which BTLs find the component, if no other component of that name is opened; empty for its own",
    NULL,
    0};

static int declare(const mca_base_component_t *component, struct parameter *one) {
  one->value = (char *)one->standard; /* Open MPI copies it */
  one->number = mca_base_component_var_register(component, one->name, one->help, MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0,
                                                OPAL_INFO_LVL_9, MCA_BASE_VAR_SCOPE_READONLY, &one->value);
  return one->number < 0 ? one->number : OPAL_SUCCESS;
}

static struct parameter replace = {
    "replace", NULL, "false", "Take that name although another component of that name is opened: true, false", NULL, 0};

int pinfold_openmpi_register_parameters(const mca_base_component_t *component) {
  for (int i = 0; i < parameter_count; ++i) {
    const int code = declare(component, &parameters[i]);
    if (code != OPAL_SUCCESS) return code;
  }
  const int code = declare(component, &replace);
  return code != OPAL_SUCCESS ? code : declare(component, &name_to_take);
}

const char *pinfold_openmpi_name_to_take(void) { return name_to_take.value == NULL ? "" : name_to_take.value; }

bool pinfold_openmpi_replaces(void) { return replace.value != NULL && opal_str_to_bool(replace.value); }

static bool is_set(const struct parameter *one) {
  mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;
  return one->value != NULL && mca_base_var_get_value(one->number, NULL, &source, NULL) == OPAL_SUCCESS &&
         source != MCA_BASE_VAR_SOURCE_DEFAULT;
}

static void apply(pinfold_options *options, const struct parameter *one) {
  char text[256];
  const int length = snprintf(text, sizeof text, "%s=%s", one->setting, one->value);
  if (length < (int)sizeof text && pinfold_options_from_text(options, text) == PINFOLD_OK) return;
  opal_output(0, "pinfold openmpi: rcache_pinfold_%s=%s is left out: %s", one->name, one->value,
              length < (int)sizeof text ? pinfold_last_error()->message : "the value is too long");
}

bool pinfold_openmpi_wants_statistics(void) {
  const struct parameter *own = &parameters[parameter_count - 1];
  char text[256];
  pinfold_options options;
  pinfold_options_init(&options, sizeof options);
  (void)pinfold_options_from_environment(&options);
  if (is_set(own) && snprintf(text, sizeof text, "%s=%s", own->setting, own->value) < (int)sizeof text)
    (void)pinfold_options_from_text(&options, text);
  return (options.flags & PINFOLD_STATISTICS_AT_EXIT) != 0;
}

void pinfold_openmpi_read_options(pinfold_options *options) {
  pinfold_options_init(options, sizeof *options);
  options->merge = PINFOLD_MERGE_RIGHTS; /* as grdma: buffers of a heap share pages, and would all become one */
  options->full = PINFOLD_FULL_BYPASS;   /* Open MPI ends the job where a registration fails */
  options->drain_timeout_ms = 0;         /* at the end no thread releases a registration any more */
  if (pinfold_options_from_environment(options) != PINFOLD_OK)
    opal_output(0, "pinfold openmpi: the PINFOLD_ variables are left out: %s", pinfold_last_error()->message);
  for (int i = 0; i < parameter_count; ++i)
    if (is_set(&parameters[i])) apply(options, &parameters[i]);
}
