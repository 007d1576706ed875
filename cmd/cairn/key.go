package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/tier/seal"
)

func keyCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "make a key that encrypts tiers",
		Long: `Writes a new random key to FILE, which only its owner can read. 'key=FILE' in
--tiers encrypts what a tier gets; every host of the run needs the same file at the
same path. Keep a copy elsewhere: without the key, what was encrypted is lost.`,
		Example: `  cairn key sim.key
  cairn run --tiers 'local=/scratch, s3=s3://bucket/sim:key=sim.key' ./sim
  cairn list --key sim.key s3://bucket/sim`,
		Args: takes(1, 1),
		RunE: c.does(func(_ context.Context, c *call) error {
			k, err := seal.CreateKey(c.args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.document(keyDocument{c.args[0], k.ID()})
			}
			c.printf("%s: a new key, %s; keep a copy of it elsewhere\n", c.args[0], k.ID())
			return nil
		}),
	}
}

// keyDocument is what key --json prints.
type keyDocument struct {
	Path string `json:"path"`
	ID   string `json:"id"` // tells the key from others, and is no secret
}
