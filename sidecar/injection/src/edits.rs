//! Changes to a pod, applied and written down at once.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::Value;

use crate::outcome::Skip;
use crate::status::{Place, Status};

/// A pod, and the operations that made it what it is.
#[derive(Debug)]
pub(crate) struct Edits {
    pod: Value,
    /// Where the pod is in its manifest.
    base: Vec<String>,
    operations: Vec<PatchOperation>,
}

impl Edits {
    pub(crate) fn new(pod: &Value, base: &[&str]) -> Self {
        let base = base.iter().map(|&token| token.to_owned()).collect();
        Self { pod: pod.clone(), base, operations: Vec::new() }
    }

    pub(crate) fn into_patch(self) -> Patch {
        Patch(self.operations)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    fn get(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(&self.pod, |value, key| match value {
            Value::Array(elements) => elements.get(key.parse::<usize>().ok()?),
            other => other.get(*key),
        })
    }

    fn pointer(path: &[&str]) -> PointerBuf {
        PointerBuf::from_tokens(path.iter().copied())
    }

    fn apply(&mut self, local: PatchOperation, global: PatchOperation) -> Result<(), Skip> {
        let at = local.path().to_string();
        json_patch::patch(&mut self.pod, &[local])
            .map_err(|_| Skip::Malformed { at, expected: "what a pod has there" })?;
        self.operations.push(global);
        Ok(())
    }

    fn global(&self, path: &[&str]) -> PointerBuf {
        PointerBuf::from_tokens(self.base.iter().map(String::as_str).chain(path.iter().copied()))
    }

    /// Adds a key to an object, or an element to an array (index, or `-` for the end).
    pub(crate) fn add(&mut self, path: &[&str], value: &Value) -> Result<(), Skip> {
        let operation = |path| PatchOperation::Add(AddOperation { path, value: value.clone() });
        self.apply(operation(Self::pointer(path)), operation(self.global(path)))
    }

    /// Replaces what is there.
    pub(crate) fn replace(&mut self, path: &[&str], value: &Value) -> Result<(), Skip> {
        let operation = |path| PatchOperation::Replace(ReplaceOperation { path, value: value.clone() });
        self.apply(operation(Self::pointer(path)), operation(self.global(path)))
    }

    /// Takes out what is there.
    pub(crate) fn remove(&mut self, path: &[&str]) -> Result<(), Skip> {
        let operation = |path| PatchOperation::Remove(RemoveOperation { path });
        self.apply(operation(Self::pointer(path)), operation(self.global(path)))
    }

    /// Adds a key or replaces its value; nothing where it has that value.
    pub(crate) fn set(&mut self, path: &[&str], value: &Value) -> Result<(), Skip> {
        match self.get(path) {
            Some(there) if there == value => Ok(()),
            Some(_) => self.replace(path, value),
            None => self.add(path, value),
        }
    }

    /// Makes a place where there is none, and notes it.
    pub(crate) fn make(&mut self, place: Place, status: &mut Status) -> Result<(), Skip> {
        let path = place.path();
        match self.get(path) {
            None => {
                self.add(path, &place.empty())?;
                status.made.push(place);
            }
            Some(Value::Null) => {
                self.replace(path, &place.empty())?;
                status.nulls.push(place);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Takes out the places that were made, where nobody else has put anything into them since.
    pub(crate) fn unmake(&mut self, status: &Status) -> Result<(), Skip> {
        for place in Place::ALL {
            let path = place.path();
            if self.get(path) != Some(&place.empty()) {
                continue;
            }
            if status.made.contains(&place) {
                self.remove(path)?;
            } else if status.nulls.contains(&place) {
                self.replace(path, &Value::Null)?;
            }
        }
        Ok(())
    }
}
