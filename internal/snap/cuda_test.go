package snap

import "github.com/cairnrun/cairn/internal/driver/cuda"

func init() { backends = append(backends, cuda.Open) }
