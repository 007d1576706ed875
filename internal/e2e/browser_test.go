//go:build linux

package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// browser is a headless Chromium with one page, driven by its debugging pipe.
type browser struct {
	t       *testing.T
	in      *os.File
	out     *bufio.Reader
	id      int
	session string
}

// newBrowser starts Chromium, or skips the test if there is none.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	name, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	toR, toW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromR, fromW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{toR, fromW} // 3 and 4
	cmd.Stderr = os.Stderr
	if testing.Short() {
		cmd.Stderr = nil
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toR.Close()
	fromW.Close()
	b := &browser{t: t, in: toW, out: bufio.NewReader(fromR)}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		toW.Close()
		fromR.Close()
	})
	target := b.call("Target.createTarget", map[string]any{"url": "about:blank"})["targetId"]
	b.session = b.call("Target.attachToTarget", map[string]any{"targetId": target, "flatten": true})["sessionId"].(string)
	b.call("Page.enable", nil)
	return b
}

// call sends a command and returns its result.
func (b *browser) call(method string, params any) map[string]any {
	b.t.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method, "params": params}
	if params == nil {
		m["params"] = map[string]any{}
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	for {
		text, err := b.out.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		var got struct {
			ID     int            `json:"id"`
			Result map[string]any `json:"result"`
			Error  *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal(text[:len(text)-1], &got); err != nil {
			b.t.Fatal(err)
		}
		if got.ID != b.id {
			continue // an event
		}
		if got.Error != nil {
			b.t.Fatalf("%s: %s", method, got.Error.Message)
		}
		return got.Result
	}
}

// open loads an address in a window of that width, light or dark.
func (b *browser) open(url string, width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 1100, "deviceScaleFactor": 1, "mobile": width < 600})
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
	b.call("Page.navigate", map[string]any{"url": url})
}

// eval returns the value of an expression as JSON.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	r := b.call("Runtime.evaluate", map[string]any{"expression": fmt.Sprintf("JSON.stringify(%s)", expression), "awaitPromise": true})
	if e, ok := r["exceptionDetails"]; ok {
		b.t.Fatalf("%s: %v", expression, e)
	}
	text, _ := r["result"].(map[string]any)["value"].(string)
	return text
}

// await waits until an expression is true.
func (b *browser) await(condition string) {
	b.t.Helper()
	limit := time.Now().Add(2 * time.Minute)
	for b.eval("(() => { try { return !!("+condition+"); } catch { return false; } })()") != "true" { // the page may not be loaded yet
		if time.Now().After(limit) {
			b.t.Fatalf("%s does not become true; the page says %s", condition, b.eval("document.body.innerText"))
		}
		b.eval("new Promise(r => setTimeout(r, 50)).then(() => 1)")
	}
}

// shoot keeps a picture of the whole page in a directory that CAIRN_PICTURES
// names.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("CAIRN_PICTURES")
	if dir == "" {
		return
	}
	data, err := base64.StdEncoding.DecodeString(b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true})["data"].(string))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), data, 0o666)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
