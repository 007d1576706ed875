module example.org/key

go 1.24
