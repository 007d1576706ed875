module example.org/oldtimers

go 1.20
