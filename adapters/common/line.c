/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/line.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

/* Takes back what the write causes, but not what was there before. */
static void write_without_signals(const char *text, size_t bytes) {
  static const int caused[] = {SIGPIPE, SIGXFSZ};
  const struct timespec at_once = {0, 0};
  sigset_t taken, earlier, before;
  sigemptyset(&taken);
  sigemptyset(&earlier);
  for (size_t i = 0; i < sizeof caused / sizeof *caused; i++) sigaddset(&taken, caused[i]);
  sigpending(&earlier);
  pthread_sigmask(SIG_BLOCK, &taken, &before);
  fwrite(text, 1, bytes, stderr);
  for (size_t i = 0; i < sizeof caused / sizeof *caused; i++)
    if (sigismember(&earlier, caused[i])) sigdelset(&taken, caused[i]);
  while (sigtimedwait(&taken, NULL, &at_once) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void print_values(const char *client, const char *format, va_list values) {
  char line[4096];
  int length = snprintf(line, sizeof line, "pinfold %s: ", client);
  length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, values);
  if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
  line[length] = '\n';
  write_without_signals(line, (size_t)length + 1);
}

void print_line(const char *client, const char *format, ...) {
  va_list values;
  va_start(values, format);
  print_values(client, format, values);
  va_end(values);
}
