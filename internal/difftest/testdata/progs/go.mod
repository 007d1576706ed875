module progs

go 1.26
