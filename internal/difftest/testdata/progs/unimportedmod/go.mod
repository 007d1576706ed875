module example.org/unimportedmod

go 1.26

require example.org/store v1.0.0

require example.org/key v1.0.0 // indirect

replace (
	example.org/key => ./key
	example.org/store => ./store
)
