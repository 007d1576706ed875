package main

func main() {
	var n int = "text"
	undefined()
}
