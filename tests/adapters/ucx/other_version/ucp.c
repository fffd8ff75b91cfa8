/* SPDX-License-Identifier: BSD-3-Clause */
void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);

void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release) {
  *major = 1;
  *minor = 17;
  *release = 3;
}
