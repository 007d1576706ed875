module trial

go 1.26
