# Writes the manual pages of section 3 from the comments of cairn.h:
#
#     awk -v dir=build/man -v version=0.1.0 -f man.awk cairn.h
#
# A comment and the functions after it make one page, named after the first; the
# others refer to it. cairn(3) has the comment at the top of the header.

function text(line) { # a line of prose, as roff has it
	gsub(/\\/, "\\e", line)
	gsub(/-/, "\\-", line)
	if (line ~ /^[.']/)
		line = "\\\&" line
	return line
}

function page(name, short, synopsis, body,    file) {
	file = dir "/" name ".3"
	printf ".TH %s 3 \"\" \"Cairn %s\" \"C library\"\n.SH NAME\n%s \\- %s\n", toupper(name), version, name, text(short) > file
	printf ".SH SYNOPSIS\n.nf\n#include <cairn.h>\n\n%s.fi\n", synopsis > file
	printf ".SH DESCRIPTION\n%s", body > file
	if (name != "cairn")
		printf ".SH RETURN VALUE\nFunctions that return a cairn_status or an int return a negative number after an\nerror; cairn_error(3) returns its text.\n" > file
	printf ".SH SEE ALSO\n%s\n", name == "cairn" ? pages : "cairn(3)" > file
	close(file)
}

function flush_page(    i, n, names, short) {
	if (protos == "" || !nnames)
		return
	short = comment
	sub(/\. .*|\.$/, "", short)
	gsub(/\n/, " ", short)
	sub("^" first "(, [a-z_]+)*( and [a-z_]+)? ?", "", short)
	if (length(short) > 110)
		short = "checkpoints for programs"
	page(first, short, protos, body)
	for (i = 2; i <= nnames; i++) {
		printf ".so man3/%s.3\n", first > (dir "/" list[i] ".3")
		close(dir "/" list[i] ".3")
	}
	for (i = 1; i <= nnames; i++)
		pages = pages (pages == "" ? "" : ",\n") list[i] "(3)"
	protos = ""
	nnames = 0
}

function begin_comment() {
	flush_page()
	protos = ""
	nnames = 0
	comment = body = ""
}

function add(line) {
	if (line ~ /^    /) { # an example
		body = body (example ? "" : ".nf\n") text(line) "\n"
		example = 1
		return
	}
	if (example)
		body = body ".fi\n"
	example = 0
	if (line == "")
		body = body ".PP\n"
	else
		body = body text(line) "\n"
	comment = comment (comment == "" ? "" : "\n") line
}

/^\/\*.*\*\/$/ { # on one line
	begin_comment()
	sub(/^\/\* */, ""); sub(/ *\*\/$/, "")
	add($0)
	next
}
/^\/\*/ { begin_comment(); inside = 1; next }
inside && /^ \*\// {
	inside = 0
	if (example)
		body = body ".fi\n"
	example = 0
	if (top == "")
		top = body
	next
}
inside { sub(/^ \* ?/, ""); add($0); next }
/^[a-zA-Z].*[ *]cairn_[a-z_]+\(.*;/ {
	name = $0
	sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
	line = $0
	sub(/ *\/\*.*/, "", line)
	protos = protos text(line) "\n"
	list[++nnames] = name
	if (nnames == 1)
		first = name
}
END {
	flush_page()
	page("cairn", "checkpoints for C, C++ and Python programs", "cc sim.c $(pkg\\-config \\-\\-cflags \\-\\-libs cairn)\n", top)
}
