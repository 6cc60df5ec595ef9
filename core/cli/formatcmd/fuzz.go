package formatcmd

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/sdk/format/cases"
)

func fuzzCommand(resolve Resolve) *cobra.Command {
	var name, seeds string
	var seed uint64
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "fuzz -f FORMAT",
		Short: "Parse random text and check what has to hold of any",
		Long: "Parse random text made of a format's markers, and of the cases of --cases, until --time is over.\n" +
			"It must not panic, what comes out must not depend on how the text is split, and arguments must be JSON.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := resolve(cmd.Context(), name)
			if err != nil {
				return err
			}
			var texts []string
			if seeds != "" {
				in, err := os.Open(seeds)
				if err != nil {
					return fmt.Errorf("read cases: %w", err)
				}
				defer in.Close()
				all, err := cases.Read(seeds, in)
				if err != nil {
					return err
				}
				for _, c := range all {
					if c.Format == name {
						texts = append(texts, c.Text)
					}
				}
			}
			z := cases.NewFuzzer(f, texts, seed)
			n, end := 0, time.Now().Add(limit)
			for ; time.Now().Before(end) && cmd.Context().Err() == nil; n++ {
				if err := z.Next(cmd.Context()); err != nil {
					fmt.Fprintf(cmd.OutOrStdout(), "FAIL after %d texts, seed %d\n%s\n", n, seed, err)
					cmd.SilenceErrors, cmd.SilenceUsage = true, true
					return ErrFailed
				}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d texts, no fault\n", n)
			return nil
		},
	}
	cmd.Flags().StringVarP(&name, "format", "f", "", "format: a name, or a YAML file")
	cmd.Flags().StringVar(&seeds, "cases", "", "JSONL file with cases, to take pieces from")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "the same seed makes the same texts")
	cmd.Flags().DurationVar(&limit, "time", 10*time.Second, "how long to go on")
	must(cmd.MarkFlagRequired("format"))
	return cmd
}
