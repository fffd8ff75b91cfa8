# SPDX-License-Identifier: BSD-3-Clause
"""Reads preprocessed C declarations, and writes them with an empty body for each function of pinfold."""
import sys

from pycparser import c_ast, c_generator, c_parser

file = c_parser.CParser().parse(sys.stdin.read())
for at, node in enumerate(file.ext):
    if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl) and node.name.startswith("pinfold_"):
        file.ext[at] = c_ast.FuncDef(node, None, c_ast.Compound([]))
print(c_generator.CGenerator().visit(file))
