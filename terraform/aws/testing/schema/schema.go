package main

import (
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// The schemas of the provider, its resources and its data sources, as Terraform asks for them.
type schemas struct {
	provider    *tfprotov5.Schema
	resources   map[string]*tfprotov5.Schema
	dataSources map[string]*tfprotov5.Schema
}

// The form of `terraform providers schema -json`.
type document struct {
	Providers map[string]struct {
		Provider    entry            `json:"provider"`
		Resources   map[string]entry `json:"resource_schemas"`
		DataSources map[string]entry `json:"data_source_schemas"`
	} `json:"provider_schemas"`
}

type entry struct {
	Version int64 `json:"version"`
	Block   block `json:"block"`
}

type block struct {
	Attributes map[string]attribute `json:"attributes"`
	Blocks     map[string]nested    `json:"block_types"`
}

type attribute struct {
	Type     json.RawMessage `json:"type"`
	Required bool            `json:"required"`
	Optional bool            `json:"optional"`
	Computed bool            `json:"computed"`
}

type nested struct {
	Mode     string `json:"nesting_mode"`
	Block    block  `json:"block"`
	MinItems int64  `json:"min_items"`
	MaxItems int64  `json:"max_items"`
}

var modes = map[string]tfprotov5.SchemaNestedBlockNestingMode{
	"single": tfprotov5.SchemaNestedBlockNestingModeSingle,
	"list":   tfprotov5.SchemaNestedBlockNestingModeList,
	"set":    tfprotov5.SchemaNestedBlockNestingModeSet,
	"map":    tfprotov5.SchemaNestedBlockNestingModeMap,
}

func read(text []byte) (schemas, error) {
	var whole document
	if err := json.Unmarshal(text, &whole); err != nil {
		return schemas{}, err
	}
	found, known := whole.Providers[address]
	if !known {
		return schemas{}, fmt.Errorf("schema.json has no provider %s", address)
	}
	provider, err := found.Provider.schema()
	if err != nil {
		return schemas{}, err
	}
	resources, err := all(found.Resources)
	if err != nil {
		return schemas{}, err
	}
	dataSources, err := all(found.DataSources)
	return schemas{provider: provider, resources: resources, dataSources: dataSources}, err
}

func all(entries map[string]entry) (map[string]*tfprotov5.Schema, error) {
	schemas := make(map[string]*tfprotov5.Schema, len(entries))
	for name, entry := range entries {
		schema, err := entry.schema()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		schemas[name] = schema
	}
	return schemas, nil
}

func (e entry) schema() (*tfprotov5.Schema, error) {
	block, err := e.Block.schema()
	return &tfprotov5.Schema{Version: e.Version, Block: block}, err
}

func (b block) schema() (*tfprotov5.SchemaBlock, error) {
	schema := &tfprotov5.SchemaBlock{}
	for name, attribute := range b.Attributes {
		of, err := tftypes.ParseJSONType(attribute.Type) //nolint:staticcheck // nothing else reads types as JSON
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		schema.Attributes = append(schema.Attributes, &tfprotov5.SchemaAttribute{
			Name: name, Type: of, Required: attribute.Required, Optional: attribute.Optional, Computed: attribute.Computed,
		})
	}
	for name, nested := range b.Blocks {
		block, err := nested.Block.schema()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		mode, known := modes[nested.Mode]
		if !known {
			return nil, fmt.Errorf("%s: unknown nesting mode %q", name, nested.Mode)
		}
		schema.BlockTypes = append(schema.BlockTypes, &tfprotov5.SchemaNestedBlock{
			TypeName: name, Block: block, Nesting: mode, MinItems: nested.MinItems, MaxItems: nested.MaxItems,
		})
	}
	return schema, nil
}

// The complaints about attributes of a resource that can only be read, and have a value in the configuration.
func unconfigurable(schema *tfprotov5.Schema, config *tfprotov5.DynamicValue) ([]*tfprotov5.Diagnostic, error) {
	value, err := config.Unmarshal(schema.ValueType())
	if err != nil {
		return nil, err
	}
	var values map[string]tftypes.Value
	if err := value.As(&values); err != nil {
		return nil, err
	}
	var found []*tfprotov5.Diagnostic
	for _, attribute := range schema.Block.Attributes {
		if value := values[attribute.Name]; attribute.Computed && !attribute.Optional && !value.IsNull() {
			found = append(found, &tfprotov5.Diagnostic{
				Severity:  tfprotov5.DiagnosticSeverityError,
				Summary:   "Value for unconfigurable attribute",
				Detail:    fmt.Sprintf("Can't configure a value for %q: its value will be decided automatically.", attribute.Name),
				Attribute: tftypes.NewAttributePath().WithAttributeName(attribute.Name),
			})
		}
	}
	return found, nil
}
