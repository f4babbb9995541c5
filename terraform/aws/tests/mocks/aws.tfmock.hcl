# What AWS would answer. The tests need values of the right form, because the machines' user data contains them.

mock_resource "aws_network_interface" {
  defaults = {
    id         = "eni-0123456789abcdef0"
    private_ip = "10.71.0.10"
  }
}

mock_resource "aws_ebs_volume" {
  defaults = {
    id = "vol-0123456789abcdef0"
  }
}

mock_resource "aws_s3_bucket" {
  defaults = {
    id  = "kiwi-load-20260101"
    arn = "arn:aws:s3:::kiwi-load-20260101"
  }
}

mock_resource "aws_iam_role" {
  defaults = {
    id   = "kiwi"
    name = "kiwi"
    arn  = "arn:aws:iam::123456789012:role/kiwi"
  }
}

mock_resource "aws_security_group" {
  defaults = {
    id = "sg-0123456789abcdef0"
  }
}

mock_resource "aws_lb" {
  defaults = {
    dns_name = "kiwi-0123456789abcdef.elb.eu-central-1.amazonaws.com"
    zone_id  = "Z0123456789ABC"
  }
}

mock_data "aws_ssm_parameter" {
  defaults = {
    insecure_value = "ami-0123456789abcdef0"
  }
}
