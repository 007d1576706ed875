package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

//go:embed torch.py
var torchScript string

// torch saves states of the same sizes with PyTorch, up to 8 GiB: larger ones
// would not fit into the memory of most machines, where PyTorch puts them.
func torch(ctx context.Context) error {
	if exec.CommandContext(ctx, "python3", "-c", "import torch; assert torch.cuda.is_available()").Run() != nil {
		fmt.Println("\nPyTorch with a GPU is not there: it is not compared with")
		return nil
	}
	var fit []string
	for _, s := range strings.Split(*sizes, ",") {
		if v, err := strconv.ParseFloat(s, 64); err == nil && v <= 8 {
			fit = append(fit, s)
		}
	}
	fmt.Println("\nPyTorch, to files in the same directory")
	cmd := exec.CommandContext(ctx, "python3", "-u", "-", *tmpDir, strconv.Itoa(min(*rounds, 3)), strings.Join(fit, ","))
	cmd.Stdin = strings.NewReader(torchScript)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
