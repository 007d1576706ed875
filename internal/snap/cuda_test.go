package snap

import "github.com/cairnrun/cairn/device/cuda"

func init() { backends = append(backends, cuda.Open) }
