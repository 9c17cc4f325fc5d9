"""What the doctor looks at: file systems, machines; its findings and remedies."""
