module example.org/oldloops

go 1.20
