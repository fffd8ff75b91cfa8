/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes that differ from message to message, and from place to place. */
#ifndef PINFOLD_TESTS_OPENMPI_PATTERN_H
#define PINFOLD_TESTS_OPENMPI_PATTERN_H

#include <stddef.h>

static inline unsigned char byte_at(unsigned message, size_t at) {
  return (unsigned char)(message * 37 + at * 13 + (at >> 8) + (at >> 16));
}

static inline void fill(unsigned char *buffer, size_t bytes, unsigned message) {
  for (size_t at = 0; at < bytes; ++at) buffer[at] = byte_at(message, at);
}

static inline long wrong_bytes(const unsigned char *buffer, size_t bytes, unsigned message) {
  long wrong = 0;
  for (size_t at = 0; at < bytes; ++at) wrong += buffer[at] != byte_at(message, at);
  return wrong;
}

#endif
