module example.org/module

go 1.26

require example.org/dep v1.2.3

replace example.org/dep => ./third
