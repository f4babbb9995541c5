variable "name" {
  description = "The name of the cluster."
  type        = string
}

variable "cidr_block" {
  description = "The addresses of the VPC, at most a /20: each zone gets a sixteenth of them twice."
  type        = string
}

variable "zones" {
  description = "The availability zones. New ones are appended, because the order decides about their addresses."
  type        = list(string)
}

variable "nat" {
  description = "The NAT gateways: one, one_per_zone, or none. Without them, machines reach only the VPC endpoints."
  type        = string
}

variable "region" {
  description = "The region, which the names of the VPC endpoints contain."
  type        = string
}

variable "tags" {
  description = "Tags of all resources."
  type        = map(string)
  default     = {}
}
