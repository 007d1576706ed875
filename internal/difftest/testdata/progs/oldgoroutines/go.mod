module example.org/oldgoroutines

go 1.12
