package interconnects

// Ranks is how many there are.
const Ranks = 8

// Options of an experiment.
type Options struct {
	Cairn, Ring string // the programs
	Dir         string // for the run; empty at the beginning
	Bytes       int    // of the message; 0: 8192
	Steps       int    // in each phase, at least; 0: 1000
	SampleSteps int    // steps in a sample; 0: 50
	Report      func(text string)
}

// Phase is one part of the experiment.
type Phase struct {
	Label    string
	Title    string
	From, To int      // steps
	Routes   []string // the transport of each hop, from rank 0 on
	Samples  []Sample
	Skipped  string // why it was left out; empty: it was not
}

// Sample is the latency of a hop in some steps, in microseconds.
type Sample struct {
	Step              int // the last one
	Mean, Least, Most float64
}
