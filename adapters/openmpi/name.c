/* SPDX-License-Identifier: BSD-3-Clause */
#include "name.h"

#include <string.h>

static bool lists(const char *names, const char *name) {
  const size_t length = strlen(name);
  while (*names != 0) {
    const size_t word = strcspn(names, ",");
    if (word == length && strncmp(names, name, length) == 0) return true;
    names += word + (names[word] == ',');
  }
  return false;
}

bool pinfold_openmpi_may_take_name(const char *selection, const char *own, const char *other) {
  if (selection == NULL || *selection == 0) return false;
  if (*selection == '^') return lists(selection + 1, other) && !lists(selection + 1, own);
  return lists(selection, own) && !lists(selection, other);
}
