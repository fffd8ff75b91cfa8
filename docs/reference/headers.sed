# SPDX-License-Identifier: BSD-3-Clause
# What Doxygen reads instead of a header: the same lines, with commands that the header is more readable without.

# The sections of a C header are groups, which the pages in docs/man describe. The first one begins with the header.
/^#define PINFOLD_[A-Z_]+_H$/ {
  N
  s,^#define PINFOLD_([A-Z_]+)_H\n$,#define PINFOLD_\1_H\n/** \\addtogroup \L\1\E */ /** \\{ */,
}
s,^/\* ---- (.*) ---- \*/$,/** \\} */ /** \\addtogroup section_\L\1\E */ /** \\{ */,
/^\/\*\* \\} / {
  :word
  s,(section_[a-z_]*) ([a-z]),\1_\2,
  t word
}
s,^#endif /\* PINFOLD_[A-Z_]+_H \*/$,& /** \\} */,

# Special members, and deduction guides.
s,^( *)([a-z_]+\([a-z_:]+&& *[a-z]*\)|[a-z_]+& operator=\([a-z_:]+&& *[a-z]*\)) noexcept,\1/** Moves. */ &,
s,^( *)friend (constexpr )?(bool|auto) operator(==|<=>)\(const ([a-z_]+)&( [a-z]+)?\, const \5&,\1/** Compares the members. */ &,
/^template <.*>$/ {
  N
  s,^template <.*>\n[a-z_]+\(.*\) -> .*;$,\n,
}
