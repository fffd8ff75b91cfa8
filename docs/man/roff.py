# SPDX-License-Identifier: BSD-3-Clause
"""Converts Doxygen's XML to text of man(7). Raises ValueError for an unknown element, so that nothing gets lost."""

import re


def escaped(text):
    special = {"\\": r"\e", "-": r"\-", "^": r"\(ha", "~": r"\(ti", "`": r"\(ga", "'": r"\(aq"}
    return "".join(special.get(character, character) for character in text)


def bold(text):
    return rf"\fB{escaped(text)}\fP"


def italic(text):
    return rf"\fI{escaped(text)}\fP"


def line(text):
    """Returns the line in a form that roff does not take for a request."""
    return rf"\&{text}" if text.startswith((".", "'")) else text


class Inline:
    """Text with fonts. Names that have a page get its section, and constants and other pages are bold."""

    names = re.compile(r"\b(pinfold_\w+)(?:\(\d?\))?|\b(PINFOLD_\w*)|\b([a-z_][\w.-]*)\((\d)\)")

    def __init__(self, pages):
        self.pages = pages

    def plain(self, text):
        done, at = "", 0
        for found in self.names.finditer(text):
            done += text[at : found.start()].replace("\\", r"\e")
            at = found.end()
            ours, constant, other, section = found.groups()
            if ours:
                done += bold(ours) + ("(3)" if ours in self.pages else found.group(0)[len(ours) :])
            else:
                done += bold(constant) if constant else f"{bold(other)}({section})"
        return done + text[at:].replace("\\", r"\e")

    def code(self, text):
        if self.names.fullmatch(text):
            return self.plain(text)
        return italic(text) if re.fullmatch(r"[a-z_]+", text) else bold(text)

    def of(self, element):
        """Returns the text of an element, without the blocks in it."""
        done, text = "", element.text or ""
        for child in element:
            if child.tag == "ref":
                text += "".join(child.itertext())
            elif child.tag not in BLOCKS:
                done += self.plain(text) + self.formatted(child)
                text = ""
            text += child.tail or ""
        return " ".join((done + self.plain(text)).split())

    def formatted(self, child):
        inside = "".join(child.itertext())
        if child.tag == "computeroutput":
            return self.code(inside)
        if child.tag in ("bold", "emphasis"):
            return {"bold": bold, "emphasis": italic}[child.tag](inside)
        raise ValueError(f"no way to show <{child.tag}>")


def code_block(lines):
    return [".PP", ".in +4n", ".EX", *(line(escaped(one)) for one in lines), ".EE", ".in", ".nh"]  # .EE undoes .nh


def listing(element, _):
    lines = []
    for one in element.findall("codeline"):
        for blank in one.iter("sp"):
            blank.text = " "
        lines.append("".join(one.itertext()))
    return code_block([one for one in lines if "SPDX-License-Identifier" not in one])


def bullets(element, inline):
    lines = []
    for item in element.findall("listitem"):
        (paragraph,) = item
        if any(child.tag in BLOCKS for child in paragraph):
            raise ValueError("no way to show blocks in a list")
        text = inline.of(paragraph)
        tag, colon, rest = text.partition(": ")
        if colon and tag.startswith(r"\f"):
            lines += [".TP", tag, line(rest)]
        else:
            lines += [r".IP \(bu 2", line(text)]
    return lines + [".PP"]


def blocks(paragraph, inline):
    lines = []
    text = inline.of(paragraph)
    if text:
        lines += [".PP", line(text)]
    for child in paragraph:
        if child.tag in BLOCKS:
            lines += BLOCKS[child.tag](child, inline)
    return lines


BLOCKS = {"programlisting": listing, "itemizedlist": bullets, "para": blocks}


def description(element, inline):
    """Returns the paragraphs of a comment as text that follows a tag."""
    paragraphs = [one for one in element.find("detaileddescription").findall("para")]
    return sum((blocks(one, inline) for one in paragraphs), [])[1:]


def tidied(lines):
    """Returns the lines without empty paragraphs."""
    pairs = zip(lines, [*lines[1:], ".SH"])
    kept = [one for one, after in pairs if one != ".PP" or not after.startswith((".SH", ".SS", ".TP", ".PP"))]
    return [one for before, one in zip(["", *kept], kept) if one != ".PP" or not before.startswith((".SH", ".SS"))]
