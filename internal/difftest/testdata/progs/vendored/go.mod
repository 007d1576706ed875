module example.org/vendored

go 1.26

require example.org/shape v0.1.0
