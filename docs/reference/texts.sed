# SPDX-License-Identifier: BSD-3-Clause
# What Doxygen reads instead of a document or of the text of a man page.

# It cannot show these drawings.
/^```mermaid$/,/^```$/ {
  s,^```mermaid$,*A drawing\, which the page shows in the sources.*,
  /^\*A drawing/! s,.*,,
}
# Names of documents in the changelog are links. Doxygen does not name headings as the links do.
s,`README\.md`,[README.md](@ref index),g
s,`([A-Z]+\.md|docs/[a-z/-]+\.md)`,[\1](\1),g
s,\]\(([./a-z-]+\.md)#[a-z-]+\),](\1),g
s,\[([^]]*)\]\(#[a-z-]+\),\1,g
# Names of functions too. It knows structures without brackets.
s,(pinfold_(options|statistics|memfd_exporter))\(3\),\1,g
s,(pinfold_[a-z_]+)\(3\),\1(),g
s,pinfold\(7\),[&](@ref overview),g
s,pinfold\.conf\(5\),[&](@ref conf),g
