package main

func picture(all []figure) string { return "" }
