module restartbench

go 1.26
