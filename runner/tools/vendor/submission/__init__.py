"""A recorded run as one archive: its layout, packing, attestation, and reading an archive that may be hostile. It knows no judge."""
