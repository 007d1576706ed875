package main

// published is what Losada et al. measured for a program with one checkpoint
// on GPUs of their time (A portable and adaptable fault tolerance solution for
// heterogeneous applications, tables 2 and 5). Index 0 is one device, 1 is two.
type published struct {
	runtime    [2]float64 // seconds
	added      [2]float64 // seconds that the checkpoint and the instrumentation add
	protocol   [2]float64 // seconds of the consistency protocol
	generation [2]float64 // seconds of the checkpoint's generation
	megabytes  float64    // size of the checkpoint
}

var papers = map[string]published{
	"ft":    {[2]float64{43.31}, [2]float64{2.56}, [2]float64{0.140}, [2]float64{1.835}, 769.54},
	"floyd": {[2]float64{260.64}, [2]float64{6.03}, [2]float64{4.323}, [2]float64{4.878}, 2048.02},
	"spmv":  {[2]float64{153.14}, [2]float64{1.95}, [2]float64{3.320}, [2]float64{0.980}, 410.15},
	"ftmd":  {[2]float64{51.27, 34.58}, [2]float64{2.74, 1.79}, [2]float64{0.138, 0.145}, [2]float64{1.823, 1.827}, 768.04},
	"summa": {[2]float64{45.50, 26.20}, [2]float64{4.08, 4.21}, [2]float64{5.101, 0.768}, [2]float64{3.665, 3.660}, 1536.07},
	"mg":    {[2]float64{26.45, 20.06}, [2]float64{1.77, 1.80}, [2]float64{0.513, 0.130}, [2]float64{1.072, 1.085}, 300.78},
	"shwa":  {[2]float64{271.48, 238.03}, [2]float64{0.78, 1.04}, [2]float64{0.003, 0.003}, [2]float64{0.022, 0.022}, 5.96},
}

// mostRestart is the longest restart overhead of their programs, in seconds:
// "always below 25". The bars of their figures 8 to 11 have no numbers.
const mostRestart = 25

// restarted returns the longest that a run of theirs can take that resumes
// after a share of its work, relative to the whole run.
func (p published) restarted(share float64) float64 {
	return 1 - share + mostRestart/p.runtime[0]
}
