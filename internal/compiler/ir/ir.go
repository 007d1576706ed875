// Package ir is the intermediate representation of Cairn's compiler: programs
// as procedures of structured statements, with just enough detail to find out
// where the work is (package hotloops) and which places no message crosses
// (package commcheck). It is independent of the language; a front end makes it
// of Go.
//
// Statements that only compute are described by what they read and write.
// Values matter only where communications depend on them, so expressions are
// kept for assignments, conditions and arguments. Whatever is not a simple
// integer expression is Unknown.
package ir

import "fmt"

// Pos is a place in a source.
type Pos struct {
	File      string
	Line, Col int
}

func (p Pos) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Program is a whole program.
type Program struct {
	Procs []*Proc
	Main  *Proc
}

// Proc is a procedure. Its body is nil if the source is not known.
type Proc struct {
	Name    string
	Pos     Pos
	Params  []*Var
	Results []*Var
	Body    []Stmt
	Known   bool
	Recv    string // the type that it is a method of, if it is one
}

// Var is a variable of a procedure, or of the program.
type Var struct {
	Name   string
	Global bool
	// Shared reports whether other statements than those that name it may write
	// to it (its address is taken, or a closure captures it). Its value is
	// never known.
	Shared bool
	// Type is the type of objects that it is a field of, or of the one that it
	// refers to; empty if it is neither.
	Type string
}

// Stmt is a statement.
type Stmt interface{ At() Pos }

// Stmts of all kinds. Reads lists every identifier that the statement reads,
// once for each time, as hotloops counts them; array indices, left sides and
// field names are not among them.
type (
	// Decl declares variables; initialisers are Assigns of their own.
	Decl struct {
		Pos
		Vars []*Var
	}
	// Assign computes. Dst[i] gets Src[i]; Dst may be nil for what is no plain
	// variable (an element, a field), Src Unknown for what is no expression
	// here.
	Assign struct {
		Pos
		Dst   []*Var
		Src   []Expr
		Reads []*Var
	}
	// Call calls one of the Procs, which are all possible callees of a dynamic
	// call. Without any, it calls a library's function, Name.
	Call struct {
		Pos
		Name    string
		Procs   []*Proc
		Args    []Expr
		Results []*Var
		Reads   []*Var
	}
	// If is a conditional. Cond's reads do not count. Where Cond cannot be
	// evaluated, Assume says what it is taken to be: 1 true, -1 false, as if
	// there were no errors; 0 takes it to be either.
	If struct {
		Pos
		Cond       Expr
		Assume     int
		Then, Else []Stmt
	}
	// Switch takes the first case one of whose values equals Tag, or the
	// default, whose Values are nil.
	Switch struct {
		Pos
		Tag   Expr
		Cases []Case
	}
	// Loop repeats Body while Cond holds. Init comes before it, Post after each
	// iteration; neither counts. AtEnd tests after the body, and Reads are then
	// those of the condition. Trip is the number of iterations if that is
	// a constant, else -1.
	Loop struct {
		Pos
		Label string
		Init  []Stmt
		Cond  Expr // nil: for ever
		Post  []Stmt
		Body  []Stmt
		AtEnd bool
		Reads []*Var
		Trip  int
	}
	// Jump exits a loop or a procedure, or goes to a label. Results are the
	// values of a return.
	Jump struct {
		Pos
		Kind    JumpKind
		Label   string
		Results []Expr
		Reads   []*Var
	}
	// Label is a target of a goto.
	Label struct {
		Pos
		Name string
	}
	// Comm is a communication between ranks.
	Comm struct {
		Pos
		Kind    CommKind
		Name    string // as the source calls it
		Group   Expr   // the communicator; nil: the world
		Peer    Expr   // destination, source or root; nil: any, or none
		Tag     Expr   // nil: any, or none
		Request *Var   // of a non-blocking one, and of a wait for it; nil: not known which
		Status  []*Var // what it writes beside its data: source, tag, count
		Reads   []*Var
	}
	// Launch starts concurrent work; Join waits for work, of one launch or,
	// with Group, of all that were launched with the same Group (a wait group).
	// A Join without either waits for something unknown.
	Launch struct {
		Pos
		Proc  *Proc // nil: not known
		Group *Var
		Reads []*Var
	}
	Join struct {
		Pos
		Group *Var
		Reads []*Var
	}
	// New makes an object, which Dst refers to: one whose fields are all 0, or
	// a copy of that which From refers to. 0 refers to no object. Objects are
	// followed where communications depend on them; what they hold is seen in
	// Puts only.
	New struct {
		Pos
		Dst  *Var
		Type string
		From Expr
	}
	// Put writes to a field of the object that Of refers to, or to an element
	// of the field if it is an array. Without Src it is not known what, and
	// without the Index of an array, to all elements.
	Put struct {
		Pos
		Of    Expr
		Field *Var
		Index Expr
		Src   Expr
	}
	// Kernel runs a kernel on a device.
	Kernel struct {
		Pos
		Name    string
		In, Out []*Var  // arrays; those that are both are in both
		Procs   []*Proc // what it may be, where there is a procedure for it
		Reads   []*Var
	}
)

func (s *Decl) At() Pos   { return s.Pos }
func (s *Assign) At() Pos { return s.Pos }
func (s *Call) At() Pos   { return s.Pos }
func (s *If) At() Pos     { return s.Pos }
func (s *Switch) At() Pos { return s.Pos }
func (s *Loop) At() Pos   { return s.Pos }
func (s *Jump) At() Pos   { return s.Pos }
func (s *Label) At() Pos  { return s.Pos }
func (s *Comm) At() Pos   { return s.Pos }
func (s *Launch) At() Pos { return s.Pos }
func (s *Join) At() Pos   { return s.Pos }
func (s *New) At() Pos    { return s.Pos }
func (s *Put) At() Pos    { return s.Pos }
func (s *Kernel) At() Pos { return s.Pos }

// Case of a Switch.
type Case struct {
	Pos
	Values []Expr
	Body   []Stmt
}

// JumpKind is a kind of Jump.
type JumpKind uint8

const (
	Break JumpKind = iota + 1
	Continue
	Return
	Goto
	Exit // ends the program
)

// CommKind is a kind of Comm.
type CommKind uint8

const (
	Send       CommKind = iota + 1 // blocking
	Recv                           // …
	StartSend                      // non-blocking, until its Wait
	StartRecv                      // …
	Wait                           // for Request, or for all in Group if that is nil
	Sendrecv                       // both at once: Peer and Tag of the send; see Comm of the receive beside it
	Collective                     // all ranks of the group, Peer is the root if it has one
	Probe
)

// Expr is an integer expression.
type Expr interface{ expr() }

// Exprs.
type (
	Const struct{ Value int64 }
	Ref   struct{ Var *Var }
	Rank  struct{ Group Expr } // of this process
	Size  struct{ Group Expr } // how many there are
	Unary struct {
		Op Op
		X  Expr
	}
	Binary struct {
		Op   Op
		X, Y Expr
	}
	// Field is a field of the object that Of refers to, or an element of it if
	// it is an array. Where that is not known, it is Else.
	Field struct {
		Of    Expr
		Var   *Var
		Index Expr
		Else  Expr
	}
	// Unknown is any other value; what it is made of is in Vars.
	Unknown struct{ Vars []*Var }
)

func (Const) expr()   {}
func (Ref) expr()     {}
func (Rank) expr()    {}
func (Size) expr()    {}
func (Unary) expr()   {}
func (Binary) expr()  {}
func (Field) expr()   {}
func (Unknown) expr() {}

// Op is an operator.
type Op uint8

const (
	Add Op = iota + 1
	Sub
	Mul
	Div // towards zero
	Rem
	And
	Or
	Xor
	Shl
	Shr
	Eq
	Ne
	Lt
	Le
	Gt
	Ge
	AndAlso
	OrElse
	Not // unary
	Neg // …
	Inv // … bitwise
	Len // … how many bits the number has, 0 for 0; of negative ones nothing is known

	// Wrap is X as an integer of Y bits, of -Y bits if Y is negative: that is,
	// with a sign. What has more than 63 bits then is not known.
	Wrap
)
