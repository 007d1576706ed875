package interconnects

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestPicture checks that the picture is well formed, and shows each sample and
// the transports.
func TestPicture(t *testing.T) {
	phases := []Phase{
		{Label: "A", Title: "one <host> & memory", To: 30, Routes: []string{"shm", "shm"}, Samples: []Sample{{10, 3, 1, 9}, {20, 4, 2, 9}, {30, 1000, 2, 2000}}},
		{Label: "B", Title: "left out", From: 30, To: 30, Skipped: "no such thing"},
		{Label: "C", Title: "mixed", From: 30, To: 40, Routes: []string{"tcp", "shm", "shm"}, Samples: []Sample{{40, 5, 5, 5}}},
	}
	for _, list := range [][]Phase{phases, nil} {
		picture := Picture(list)
		d := xml.NewDecoder(strings.NewReader(picture))
		circles := 0
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, picture)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
				circles++
			}
		}
		want := 0
		for _, p := range list {
			want += len(p.Samples)
		}
		if circles != want || strings.Contains(picture, "NaN") || strings.Contains(picture, "Inf") {
			t.Errorf("%d samples are drawn of %d:\n%s", circles, want, picture)
		}
		if list != nil && (!strings.Contains(picture, "2 × shm, 1 × tcp") || strings.Contains(picture, "left out")) {
			t.Errorf("the phases are not as they should be:\n%s", picture)
		}
	}
}
