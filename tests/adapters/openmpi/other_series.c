/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded: Open MPI says that it is of another series. */
const char opal_version_string[] = "5.0.7";
