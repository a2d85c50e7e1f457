import { ConcatDataset, Subset, TensorDataset } from '../datasets.ts'
import type { DatasetDescription } from '../descriptions.ts'
import { IdxDataset } from '../idx-dataset.ts'
import { ImageFolder } from '../image-folder.ts'
import { TextDataset } from '../language/text-dataset.ts'
import type { Dataset } from '../samples.ts'
import { TokenDataset } from '../text.ts'

/** The data set that `description` describes. */
export function restoreDataset(description: DatasetDescription): Dataset<unknown> {
  switch (description.kind) {
    case 'tensors':
      return new TensorDataset(description.tensors)
    case 'subset':
      return new Subset(restoreDataset(description.of), description.indices)
    case 'concat':
      return new ConcatDataset(description.of.map(restoreDataset))
    case 'imageFolder':
      return ImageFolder.restore(description)
    case 'idx':
      return IdxDataset.restore(description)
    case 'tokens':
      return new TokenDataset(description.tokens, description)
    case 'texts':
      return new TextDataset(description.contents)
  }
}
