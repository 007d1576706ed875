package interconnects

// Ranks is the number of ranks.
const Ranks = 8

// Options of an experiment.
type Options struct {
	Cairn, Ring string // the programs
	Dir         string // directory for the run; empty at the beginning
	Bytes       int    // size of the message; 0: 8192
	Steps       int    // minimum number of steps in each phase; 0: 1000
	SampleSteps int    // number of steps in a sample; 0: 50
	Report      func(text string)
}

// Phase is one part of the experiment.
type Phase struct {
	Label    string
	Title    string
	From, To int      // steps
	Routes   []string // the transport of each hop, from rank 0 on
	Samples  []Sample
	Skipped  string // why the phase was skipped; empty: it was not
}

// Sample is the latency of a hop over some steps, in microseconds.
type Sample struct {
	Step              int // the last step of the sample
	Mean, Least, Most float64
}
