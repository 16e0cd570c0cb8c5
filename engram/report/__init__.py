"""From the ledger to what people read: Markdown tables, SVG figures, one HTML page. Nothing here imports torch."""
