// The schema replica of the AWS provider. It knows the types of schema.json, and it checks configurations against them.
// It can do nothing else: every other call panics, so it never looks like a provider that can plan.
package main

import (
	"context"
	_ "embed"
	"log"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
)

const address = "registry.terraform.io/hashicorp/aws"

//go:embed schema.json
var written []byte

// The embedded interface is nil, so a call of any method that is not below panics.
type replica struct {
	tfprotov5.ProviderServer
	schemas schemas
}

func (r replica) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse, error) {
	answer := &tfprotov5.GetMetadataResponse{ServerCapabilities: &tfprotov5.ServerCapabilities{}}
	for name := range r.schemas.resources {
		answer.Resources = append(answer.Resources, tfprotov5.ResourceMetadata{TypeName: name})
	}
	for name := range r.schemas.dataSources {
		answer.DataSources = append(answer.DataSources, tfprotov5.DataSourceMetadata{TypeName: name})
	}
	return answer, nil
}

func (r replica) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (*tfprotov5.GetProviderSchemaResponse, error) {
	return &tfprotov5.GetProviderSchemaResponse{
		Provider:           r.schemas.provider,
		ResourceSchemas:    r.schemas.resources,
		DataSourceSchemas:  r.schemas.dataSources,
		ServerCapabilities: &tfprotov5.ServerCapabilities{},
	}, nil
}

// Terraform compares a configuration with the schema before it asks the provider. What is left to the provider is to
// refuse values of attributes that can only be read.

func (r replica) PrepareProviderConfig(_ context.Context, request *tfprotov5.PrepareProviderConfigRequest) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: request.Config}, nil
}

func (r replica) ConfigureProvider(context.Context, *tfprotov5.ConfigureProviderRequest) (*tfprotov5.ConfigureProviderResponse, error) {
	return &tfprotov5.ConfigureProviderResponse{}, nil
}

func (r replica) ValidateResourceTypeConfig(_ context.Context, request *tfprotov5.ValidateResourceTypeConfigRequest) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	diagnostics, err := unconfigurable(r.schemas.resources[request.TypeName], request.Config)
	return &tfprotov5.ValidateResourceTypeConfigResponse{Diagnostics: diagnostics}, err
}

func (r replica) ValidateDataSourceConfig(_ context.Context, request *tfprotov5.ValidateDataSourceConfigRequest) (*tfprotov5.ValidateDataSourceConfigResponse, error) {
	diagnostics, err := unconfigurable(r.schemas.dataSources[request.TypeName], request.Config)
	return &tfprotov5.ValidateDataSourceConfigResponse{Diagnostics: diagnostics}, err
}

func (r replica) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

func main() {
	schemas, err := read(written)
	if err != nil {
		log.Fatal(err)
	}
	if err := tf5server.Serve(address, func() tfprotov5.ProviderServer { return replica{schemas: schemas} }); err != nil {
		log.Fatal(err)
	}
}
