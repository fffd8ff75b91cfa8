/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines on stderr. */
#ifndef PINFOLD_ADAPTERS_LINE_H
#define PINFOLD_ADAPTERS_LINE_H

#include <stdarg.h>

/* Writes one line at once, as processes share stderr: "pinfold <client>: ...". Where stderr is a pipe without readers,
 * or a file at its limit, the line is lost; the signal of that does not end the program. */
void print_line(const char *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
void print_values(const char *client, const char *format, va_list values) __attribute__((format(printf, 2, 0)));

#endif
