import { cellBackends } from '../../../support/collective-cells.ts'
import { localCells } from '../../../support/local-cells.ts'

localCells(cellBackends.local.filter((size) => size > 3))
