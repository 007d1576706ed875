module example.org/store

go 1.24

require example.org/key v1.0.0
