variable "name" {
  description = "The name of the cluster."
  type        = string
}

variable "kept" {
  description = "How many daily snapshots of each volume are kept."
  type        = number
}

variable "partition" {
  description = "The partition of the account: aws, aws-cn or aws-us-gov."
  type        = string
}

variable "times" {
  description = "When the snapshots of the gateway and those of the workers begin, in UTC."
  type        = object({ gateway = string, worker = string })
  default     = { gateway = "02:00", worker = "04:00" }
}

variable "tags" {
  description = "Tags of all resources."
  type        = map(string)
}
