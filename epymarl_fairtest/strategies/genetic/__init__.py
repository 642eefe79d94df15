"""What the genetic strategies share: selection and operators on recorded episodes."""
