import { TabringError } from '../../util/errors.ts'

/** The error of what needs a model before there is one. */
export const noModel = () =>
  new TabringError(
    'graph.misuse',
    'query: there is no model yet. Ask again when training has started.',
  )
