package verify

import (
	"strings"
	"testing"
)

// TestVerifier_Check checks continuations. In each text, N stands before a
// variable that is not in the frame. want is the variable that may be read
// without a value, or empty.
func TestVerifier_Check(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"saved", "x := cairn_s.x\nprint(x)\n", ""},
		{"not in the frame", "x := cairn_s.z\nprint(x)\n", "z"},
		{"read", "var Nx int\n_ = x\nprint(x)\n", "x"},
		{"assigned first", "var Nx int\n_ = x\nx = 1\nprint(x)\n", ""},
		{"assigned from itself", "var Nx int\nx = x + 1\n", "x"},
		{"changed", "var Nx int\nx++\n", "x"},
		{"on one way", "var Nx int\nif f() {\nx = 1\n}\nprint(x)\n", "x"},
		{"on both ways", "var Nx int\nif f() {\nx = 1\n} else {\nx = 2\n}\nprint(x)\n", ""},
		{"not on the way that returns", "var Nx int\nif f() {\nreturn 1\n} else {\nx = 2\n}\nprint(x)\n", ""},
		{"parameter", "p = cairn_s.x\nprint(p)\n", ""},
		{"parameter that is not restored", "print(p)\n", "p"},
		{"result by a bare return", "return\n", "r"},
		{"result that is restored", "r = cairn_s.x\nreturn\n", ""},
		{"result that is not read", "return 3\n", ""},
		{"condition of the iterations", "var Nswapped bool\n_ = swapped\nEfor ; swapped; {\nswapped = false\n}\n", "swapped"},
		{"condition after the first iteration", "var Nswapped bool\nfor cairn_again1 := true; cairn_again1 || swapped; {\nif cairn_again1 {\ncairn_again1 = false\nswapped = f()\n} else {\nswapped = g()\n}\n}\n", ""},
		{"continue before it is assigned", "var Nswapped bool\nfor cairn_again1 := true; cairn_again1 || swapped; {\nif cairn_again1 {\ncairn_again1 = false\nif f() {\ncontinue\n}\nswapped = f()\n} else {\nswapped = g()\n}\n}\n", "swapped"},
		{"header's variable", "for Non, cairn_again1 := false, true; cairn_again1 || on; {\nif cairn_again1 {\ncairn_again1 = false\n}\n}\n", "on"},
		{"assigned in a loop that is entered", "var Nlast int\nEfor i := cairn_s.x; i < 3; i++ {\nlast = i\n}\nprint(last)\n", ""},
		{"assigned in a loop that may be passed", "var Nlast int\nfor i := cairn_s.x; i < 3; i++ {\nlast = i\n}\nprint(last)\n", "last"},
		{"break before it is assigned", "var Nlast int\nEfor i := cairn_s.x; i < 3; i++ {\nif f() {\nbreak\n}\nlast = i\n}\nprint(last)\n", "last"},
		{"outer label", "var Nx int\nL:\nfor {\nfor {\nif f() {\nbreak L\n}\nx = 1\n}\n}\nprint(x)\n", "x"},
		{"rest of a string", "var Nx int\nfor cairn_j1, c := range s[2:] {\nif cairn_j1 == 0 {\nx = 1\n} else {\nprint(x, c)\n}\n}\nprint(x)\n", ""},
		{"range that may be empty", "var Nx int\nfor _, x = range list {\n}\nprint(x)\n", "x"},
		{"range of a place", "var Ni int\nfor a[i] = range list {\n}\n", "i"},
		{"all clauses", "var Nx int\nswitch f() {\ncase 1:\nx = 1\ndefault:\nx = 2\n}\nprint(x)\n", ""},
		{"no default clause", "var Nx int\nswitch f() {\ncase 1:\nx = 1\n}\nprint(x)\n", "x"},
		{"break of a clause", "var Nx int\nswitch f() {\ndefault:\nif g() {\nbreak\n}\nx = 2\n}\nprint(x)\n", "x"},
		{"fallthrough", "var Nx int\nswitch f() {\ncase 1:\nfallthrough\ncase 2:\nprint(x)\n}\n", "x"},
		{"clause that is continued", "var Nx int\nswitch 0 {\ncase 0:\nx = 1\nfallthrough\ncase 1:\nprint(x)\n}\n", ""},
		{"select clause", "var Nx int\nselect {\ncase x = <-a:\nprint(x)\ndefault:\n}\n", ""},
		{"other select clause", "var Nx int\nselect {\ncase x = <-a:\ncase <-b:\nprint(x)\n}\n", "x"},
		{"channel of a select", "var Nx chan int\nselect {\ncase <-x:\ndefault:\n}\n", "x"},
		{"goto ahead", "var Nx int\nif f() {\ngoto L\n}\nx = 1\nL:\nprint(x)\n", "x"},
		{"goto back", "var Nx int\ny := 0\nL:\nif y > 0 {\nprint(x)\n}\ny++\ngoto L\n", "x"},
		{"callee", "var Nx I\n_ = x\nx = x.next()\n", "x"},
		{"func value", "var Nf F\nf = f()\n", "f"},
		{"box", "Ncairn_b_x := cairn_.New(0)\nprint((*cairn_b_x))\n", "cairn_b_x"},
		{"box that is assigned", "Ncairn_b_x := cairn_.New(0)\n(*cairn_b_x) = 1\nprint((*cairn_b_x))\n", ""},
		{"part of a box", "Ncairn_b_x := cairn_.New(T{})\n(*cairn_b_x).n = 1\n", "cairn_b_x"},
		{"part of a variable", "var Nx [3]int\nx[1] = 2\n", "x"},
		{"captured", "var Nx int\nf := func() { print(x) }\nf()\n", "x"},
		{"captured and assigned", "var Nx int\nf := func() { print(x) }\nx = 1\nf()\n", ""},
		{"recursive literal", "var Nf func()\nf = func() { f() }\nf()\n", ""},
		{"field's name", "var Nx int\nprint(T{x: 1})\n", ""},
		{"map's key", "var Nx int\nprint(map[int]int{x: 1})\n", "x"},
		{"another of the name", "var Nx int\n{\nx := 1\nprint(x)\n}\n", ""},
		{"short circuit", "var Nx bool\nif f() && x {\n}\n", "x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.NewReplacer("var N", "var "+NoValue, "\nN", "\n"+NoValue, "for N", "for "+NoValue, "\nE", "\n"+EntersNow).Replace("\n" + c.text)
			v := New()
			v.Saved["x"] = true
			err := v.Check([]string{NoValue + "p"}, []string{NoValue + "r"}, text)
			switch {
			case err == nil && c.want != "":
				t.Errorf("%s has no value where it is read, but nothing is said", c.want)
			case err != nil && (c.want == "" || !strings.HasPrefix(err.Error(), c.want+" ")):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
