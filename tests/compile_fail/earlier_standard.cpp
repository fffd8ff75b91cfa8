// SPDX-License-Identifier: BSD-3-Clause
// Refused with: pinfold needs C\+\+20: compile with -std=c\+\+20
// A program for C++17 is told so first.
#ifndef FIXED
#undef __cplusplus
#define __cplusplus 201703L
#endif
#include <pinfold/export.hpp>

int main() {}
