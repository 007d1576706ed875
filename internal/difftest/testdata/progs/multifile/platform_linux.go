package main

const platform = "here"
