package graph

import "testing"

// TestSourceName checks the names of the source for names that the compiler
// made.
func TestSourceName(t *testing.T) {
	for name, want := range map[string]string{
		"main.main": "main.main",
		"example.com/a.b/fut.cairn_fast_New[...].func1":      "example.com/a.b/fut.New.func1",
		"main.(*T).cairn_fast_run":                           "main.(*T).run",
		"main.cairn_continue_12_T_run":                       "main.T_run",
		"main.cairn_plain_main":                              "main.main",
		"main.cairn_make_main_1.func1":                       "main.main.func",
		"main.cairn_make_main_1.func1.2":                     "main.main.func.2",
		"main.cairn_func_main_1":                             "main.main.func",
		"main.cairn_func_value_at_1":                         "main.value_at.func",
		"main.cairn_func_0expr_main_2":                       "main.a method expression in main",
		"fut.Cairn_make_0value_New_1[...].func1":             "fut.a method value in New",
		"example.com/fut.cairn_make_0value_New_1_of_2.func1": "example.com/fut.a method value in New",
	} {
		if got := SourceName(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
